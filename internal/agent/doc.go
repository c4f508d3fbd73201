// Package agent makes the parts of an agent from a configuration and connects them. It starts them in order, reloads
// the configuration, and stops them.
package agent
