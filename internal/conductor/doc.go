// Package conductor handles events: it gathers facts, decides, applies and confirms. It is the
// only writer of state, and holds its lock only while it decides. Attachments pass events to it
// and carry its answers; the keeper writes what they cannot carry.
package conductor
