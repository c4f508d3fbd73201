// Package top is the live view of a node: how busy the CPUs are, who may use them, and how much waits. A frame is made of
// what the agent reports and of two readings of /proc; the terminal is bubbletea's business.
package top
