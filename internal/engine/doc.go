// Package engine makes the decisions of the agent. It makes a plan from the state of the node, one event, and
// the facts gathered for the event. It does no I/O, reads no clock and writes no log. Equal inputs give equal
// plans. The state changes only when a plan is committed.
package engine
