module dra-extender.io/node-programs

go 1.26.0
