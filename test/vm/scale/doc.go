// Package scale measures what the agents of many nodes cost a real API server. Their parts that talk to it are the real
// ones, and each has a connection of its own; the nodes, their runtimes and kubelets are simulated.
package scale
