package config

// ReadPolicyFile reads the file that placement.policyFile names into the configuration, as a configuration file is
// read. It is for a configuration that was not read by Load, Parse or Merge. The error is one *Error with all problems.
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
