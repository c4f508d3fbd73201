// Package nodeview describes the node to users and programs: status, explain, the summary for metrics, what-if and the
// journal. It reads a View that package conductor makes, and returns types of report/api. It changes nothing on the node.
package nodeview
