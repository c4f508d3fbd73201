// Package publish writes objects about the node to the API server, with server-side
// apply. It writes nothing that has not changed, and never what another program
// writes. What fails costs the report alone.
package publish
