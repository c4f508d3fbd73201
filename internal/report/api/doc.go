// Package api has the types of the status protocol: what clients ask the agent, and
// what it answers as JSON. It has neither a server nor tables.
package api
