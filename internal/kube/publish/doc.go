// Package publish writes objects about the node to the API server, with server-side
// apply. It writes only changes, and never a field of another program. A failure only
// delays the report.
package publish
