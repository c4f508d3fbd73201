// Package engine decides: it makes a plan from the state of the node, one event and the facts
// gathered for it. It is pure: it does no I/O, reads no clock and writes no log. Equal input
// gives equal output. The state changes only when a plan is committed.
package engine
