"""The last mile, made of all the steps: a network that keeps its budget on the device, in a bundle, with its report."""
