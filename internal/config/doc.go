// Package config owns the agent's configuration: its shape, its defaults, its
// strict loading and validation, and following a file as it changes. It does
// not apply anything.
package config
