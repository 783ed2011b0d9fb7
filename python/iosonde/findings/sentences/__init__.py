"""One file for each kind of question: how its answer reads as a sentence, and when it may be said."""
