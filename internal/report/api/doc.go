// Package api has the words of the status protocol: what is asked of the agent, and
// what it answers as JSON. It has types alone: neither a server nor tables for people.
package api
