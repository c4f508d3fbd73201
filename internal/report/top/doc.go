// Package top is the live view of a node: how busy the CPUs are, who may use them, and how much waits. It makes a
// frame from the agent's report and two readings of /proc. bubbletea handles the terminal.
package top
