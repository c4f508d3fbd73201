// Package runtimes lists what container runtimes do with values that Trimtab could
// send: which values they refuse, so that the request fails, and which they drop
// without an error. It is a table with a source for each row. It sends nothing and does
// not depend on any message type.
package runtimes
