// Package fleet finds the agents of a cluster through the API server, and runs their
// own program in their pods (pods/exec), so that agents need no open port. It is the
// plugin's half: agents do not import it. It changes nothing but ConfigMaps, and those
// only in a rollout.
package fleet
