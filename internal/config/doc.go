// Package config owns the agent's configuration: its structure and defaults, strict loading and validation, and
// watching a file for changes. It applies nothing.
package config
