// Package nodeview makes what users and programs see of a node: status, explain, the summary
// for metrics, what-if and the journal. It reads a View that the conductor makes, and returns
// types of report/api. It changes nothing.
package nodeview
