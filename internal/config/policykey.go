package config

// ReadPolicyFile reads the file that placement.policyFile names into the configuration, as a configuration file is
// read. It is for a configuration that was not read by Load, Parse or Merge. The error is one *Error with all problems.
func (c *Config) ReadPolicyFile() error {
	m := merging{config: *c, set: map[string]place{}}
	if problem := absolute(c.Placement.PolicyFile); c.Placement.PolicyFile != "" && problem != "" {
		return refuse([]Problem{{Path: "placement.policyFile", What: problem}})
	}
	m.policyFile()
	if err := refuse(m.problems); err != nil {
		return err
	}
	*c = m.config
	return nil
}
