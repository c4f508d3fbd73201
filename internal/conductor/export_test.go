package conductor

// Changed has a conductor save its checkpoint.
func Changed(c *Conductor) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.late.mark()
}
