"""Files of estimators that come with deploynas; `deploynas.accuracy.shipped_estimators` names them."""
