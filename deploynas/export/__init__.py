"""From a fine-tuned network to files that run elsewhere: fold, write, verify, quantise, measure, bundle."""
