// Package page is the web page of a node: a live map of its CPUs with the owner of each, and the reasons. It serves
// fixed files and the agent's state, and changes nothing. It does work only while a browser has the page open.
package page
