// Package status reports what the agent decided. It has the server, which serves JSON on a Unix socket for root only,
// the client, and the tables for users. It decides nothing.
package status
