// Package fleet finds the agents of a cluster through the API server, and runs the agents' own program in their
// pods (pods/exec), so that agents need no open port. Only kubectl trimtab uses this package; no agent does. The
// package changes only ConfigMaps.
package fleet
