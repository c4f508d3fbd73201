// Package scale measures the load that the agents of many nodes put on a real API server. The agents' parts
// that use it are the real ones, each with its own connection; nodes, runtimes and kubelets are simulated.
package scale
