// Package status reports what the agent decided. It has the server, which answers in JSON on a Unix socket that only
// root may use. It also has the client of this server, and functions that format the answers for users.
package status
