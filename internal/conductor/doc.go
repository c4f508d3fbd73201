// Package conductor handles events: it gathers facts, makes decisions, applies them and notes the results. The
// conductor is the only writer of the state, and locks the state only while it decides. Attachments pass events to the
// conductor, and send its answers to the runtime. The keeper writes the values that answers cannot hold to the kernel.
package conductor
