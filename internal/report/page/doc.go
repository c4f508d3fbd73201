// Package page is the web page of a node: the map of its CPUs with who owns each, live, and why. It serves fixed files
// and what the agent knows, and changes nothing. Work is done only while a browser has the page open.
package page
