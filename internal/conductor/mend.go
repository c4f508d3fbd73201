package conductor

// Mend looks at every value in force at once and writes again what others have
// undone, and what the kernel refused. Watch does the same bit by bit, within a second.
func (c *Conductor) Mend() {
	if owners := c.keeper.Differing(); len(owners) > 0 {
		c.repair(owners)
	}
	c.retryRefused()
}
