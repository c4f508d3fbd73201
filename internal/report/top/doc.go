// Package top is the live view of a node: how busy the CPUs are, which pods may use them, and how much tasks wait for
// CPUs. It draws a frame from the agent's report and two readings of /proc. The library bubbletea handles the terminal.
package top
