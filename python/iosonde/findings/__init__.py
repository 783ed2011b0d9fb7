"""What a result set answers: one module per question, and the sentences that state the answers."""
