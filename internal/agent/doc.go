// Package agent creates and connects the other packages, and owns their life cycle: start order, reload,
// shutdown.
package agent
