// Package conformance plays every scenario through every attachment and holds
// what comes of it against the engine alone: per container the effective state
// is the same in all, but for fields that an attachment declares it cannot
// carry (package parity). A new attachment is one more player.
package conformance
