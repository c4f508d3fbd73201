// Package runtimes says what container runtimes do with values that Trimtab could
// send to them: which they refuse, so that the request fails, and which they drop
// without an error. It is a table with a source for each row; it sends nothing and
// knows no message.
package runtimes
