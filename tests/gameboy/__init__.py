"""Is the Game Boy ours? The assembler, the game, and the environment around them."""
