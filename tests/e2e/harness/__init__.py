"""What a story needs: a scripted backend, a real nginx, and clients that misbehave."""
