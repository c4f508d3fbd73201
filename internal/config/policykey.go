package config

// ReadPolicyFile reads the file that placement.policyFile names into the configuration. Load, Parse and Merge do this
// themselves; ReadPolicyFile is for a configuration that the caller made in another way. The error is one *Error with
// all problems.
func (c *Config) ReadPolicyFile() error {
	m := merger{config: *c, positions: map[string]keyPosition{}}
	if problem := checkAbsolutePath(c.Placement.PolicyFile); c.Placement.PolicyFile != "" && problem != "" {
		return errorOf([]Problem{{Path: "placement.policyFile", What: problem}})
	}
	m.mergePolicyFile()
	if err := errorOf(m.problems); err != nil {
		return err
	}
	*c = m.config
	return nil
}
