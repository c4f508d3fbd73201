// Package page is the web page of a node. The page shows a live map of the node's CPUs with the owner of each CPU, and
// explains the agent's decisions. The package serves fixed files and the agent's state, and changes nothing. It does
// work only while a browser has the page open.
package page
