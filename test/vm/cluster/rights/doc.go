// Package rights tests what a real API server lets agents change, with the roles and policies of the chart.
package rights
