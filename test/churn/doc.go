// Package churn has a thousand containers of every class come and go on a
// described node of 256 CPUs, through the NRI attachment under policy pools, and
// looks at what everybody may run on at every write to the kernel: I1, I2 and I4.
// TestStorm does so on a smaller node while calls of the agent to files and
// sockets fail.
package churn
