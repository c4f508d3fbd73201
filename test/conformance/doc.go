// Package conformance plays every scenario through every attachment and compares the result with the engine's
// decisions. Each container must have the same effective state with all attachments. Package parity declares
// exceptions: fields that an attachment cannot set. For a new attachment, add a Player.
package conformance
