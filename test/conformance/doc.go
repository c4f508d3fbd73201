// Package conformance plays every scenario through every attachment and compares the result with the engine's
// decisions. Each container must have the same effective state in all of them, except for fields that an attachment
// declares it cannot carry (package parity). A new attachment is one more Player.
package conformance
