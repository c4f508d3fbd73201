// Package api has the types of the status protocol: the agent's answers to its clients, as JSON. The server, the client
// and the tables for users are in package status.
package api
