import static java.lang.foreign.ValueLayout.JAVA_FLOAT;

import java.lang.foreign.Arena;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/**
 * Runs a model with one input of float32 from several threads, and shows what an error says.
 *
 * <pre>java --enable-native-access=ALL-UNNAMED Host.java libtvm_ffi.so libweft_runtime.so model.so</pre>
 */
public final class Host {
  static double run(Weft model, long... shape) {
    try (Arena arena = Arena.ofConfined()) {
      int count = 1;
      for (long d : shape) count *= (int) d;
      float[] values = new float[count];
      for (int i = 0; i < count; ++i) values[i] = i % 7 - 3;
      Weft.Tensor x = Weft.Tensor.of(arena.allocateFrom(JAVA_FLOAT, values), "float32", shape);
      double total = 0;
      try (Weft.Tensor y = model.run("main", x).get(0)) {
        for (float v : y.data().toArray(JAVA_FLOAT)) total += v;
      }
      return total;
    }
  }

  public static void main(String[] args) throws InterruptedException {
    Weft.load(Path.of(args[0]), Path.of(args[1]));
    try (Weft model = Weft.open(Path.of(args[2]))) {
      for (Weft.TensorInfo i : model.inputs()) System.out.println("input " + i.name() + ": " + i.dtype() + " " + i.shape());
      for (Weft.TensorInfo o : model.outputs()) System.out.println("output " + o.name() + ": " + o.dtype() + " " + o.shape());
      List<String> dims = model.inputs().get(0).shape();
      long[] shape = dims.stream().mapToLong(d -> Character.isDigit(d.charAt(0)) ? Long.parseLong(d) : 3).toArray();
      List<Thread> threads = new ArrayList<>();
      double[] sums = new double[3];
      for (int t = 0; t < sums.length; ++t) {
        int slot = t;
        threads.add(new Thread(() -> {
          for (int i = 0; i < 100; ++i) sums[slot] = run(model, shape);
        }));
        threads.get(t).start();
      }
      for (Thread t : threads) t.join();
      for (double s : sums) System.out.printf("sum %.4f%n", s);
      run(model, 3, 8, 1);
    } catch (Weft.WeftException e) {
      System.out.println(e.getMessage());
    }
  }
}
