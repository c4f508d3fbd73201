// Package scale measures the load that the agents of many nodes put on a real API server. The agents' code that uses
// the API server is real, and each agent has its own connection. Nodes, runtimes and kubelets are simulated.
package scale
