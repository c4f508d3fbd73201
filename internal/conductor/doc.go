// Package conductor gathers facts, decides, applies and confirms. It is the
// one writer of state: its lock is held only while deciding. Attachments hand
// it events and carry its answers; the keeper writes what they cannot carry.
package conductor
