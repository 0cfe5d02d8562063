kernel layer_norm {
  %0 = input 0 : f16[16,4096]
  %1 = input 1 : f16[4096]
  %2 = input 2 : f16[4096]
  %3 = reduce.sum 1 %0
  %4 = const 4096 extent 0.1
  %5 = div %3 %4
  %6 = sub %0 %5
  %7 = square %6
  %8 = reduce.sum 1 %7
  %9 = div %8 %4
  %10 = const 1e-05
  %11 = add %9 %10
  %12 = sqrt %11
  %13 = div %6 %12
  %14 = mul %13 %1
  %15 = add %14 %2
  output 0 %15 : f16
}
