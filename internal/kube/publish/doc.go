// Package publish writes objects about the node to the API server, with server-side apply. It sends a request only if an
// object must change, and never changes fields that another program owns. After a failure, it tries again later.
package publish
