// Package config has the agent's configuration: its structure and defaults, strict loading and validation, and
// watching a file for changes. The package does not put a configuration in force.
package config
