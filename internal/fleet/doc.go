// Package fleet finds the agents of a cluster through the API server, and runs their
// own program in their pods (pods/exec), so that agents need no open port. Only kubectl
// trimtab uses it, no agent does. It changes nothing but ConfigMaps, and those only in
// a rollout.
package fleet
