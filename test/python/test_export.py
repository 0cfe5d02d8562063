"""What `export` writes means what the module computes: each row of the ATen table, evaluated in primitives, against PyTorch."""

import unittest

from helpers import Case

try:
    import torch
    from torch import nn
    from torch.nn import functional as F
except ImportError:
    torch = None

if torch is not None:
    import mirage_opt
    from mirage_opt import command

    from normal_form import evaluate

    class Rows(nn.Module):
        def __init__(self, functions):
            super().__init__()
            self.functions = functions

        def forward(self, *args):
            return tuple(f(*args) for f in self.functions)


ELEMENTWISE = """x.abs() x.exp() p.log() p.sqrt() p.rsqrt() -x x.sigmoid() F.silu(x) x.relu() x.tanh() F.gelu(x)
F.gelu(x,approximate='tanh') F.leaky_relu(x,0.2) F.elu(x,0.5) F.selu(x) F.softplus(x) F.softplus(x,2)
F.hardtanh(x,-0.5,0.7) F.relu6(3*x) F.hardswish(3*x) F.hardsigmoid(3*x) F.mish(x) F.softsign(x) F.tanhshrink(x) F.hardshrink(x)
F.threshold(x,0.1,2.0) x.clamp(-0.5) x.clamp(max=0.5) x.clamp(-0.2,0.3)
x.clamp(y,p) x+2 2-x x-y torch.add(x,y,alpha=2) torch.sub(x,y,alpha=0.5) x*y x/p 1/p x**2 x**3 p**0.5 p**-1.5 p**y 2**x p.reciprocal()
x.maximum(y) x.minimum(y) torch.where(x>y,x,y) torch.where(x>y,1.0,x)
x==y x!=y x<y x<=y x>y x>=0 (x>0)&(y>0) (x>0)|(y>0) (x>0)^(y>0) ~(x>0) torch.logical_and(x,y) torch.logical_not(x) x.masked_fill(y>0,-1)
(x>0)*x (x>0).float() x.half().float() p.log2() p.log10() x.cosh() x.lerp(y,0.3) x.square()
x.addcmul(y,p,value=0.5) x.addcdiv(y,p,value=2) F.glu(x) x.nan_to_num() torch.zeros_like(x)+y torch.full((5,6),3.0)*y torch.ones(6)+x
torch.arange(6)*x torch.arange(1,13,2)*x x.minimum(torch.tensor(0.5)) torch.tensor(2)*x"""
ROUNDED = """x.floor() x.ceil() (4*x).round() x.sign() x.trunc() torch.div(x,p,rounding_mode='floor') torch.div(x,p,rounding_mode='trunc')
x.remainder(p) x.fmod(p) torch.floor_divide(x,p) x.frac()"""
TRANSCENDENTAL = """F.celu(x,2.0) F.logsigmoid(x) F.softshrink(x,0.2) x.sin() x.cos() x.tan() x.erf() x.log1p() x.expm1() x.sinh() x.asinh()
(p+1).acosh() (x/4).atanh() x.exp2()"""
REDUCTIONS = """x.sum() x.sum(1) x.sum((0,1)) x.sum(0,keepdim=True) x.mean() x.mean(1) x.mean(-1,keepdim=True) x.amax(0) x.amin(1) x.max()
x.min() x.max(1)[0] x.min(0,keepdim=True)[0] x.var(1) x.var(0,unbiased=False) x.std(1) x.std()
torch.var_mean(x,1)[0] x.logsumexp(1) x.softmax(1) x.softmax(0) x.log_softmax(1) x.norm(dim=1) x.norm(p=1,dim=0) F.normalize(x,dim=1)
x.cumsum(1) x.cumsum(0) (x>0).any(1) (x>0).all(1) F.mse_loss(x,y) F.smooth_l1_loss(x,y)
F.kl_div(x,p,reduction='batchmean') F.cosine_similarity(x,y) F.softmin(x,1) F.cross_entropy(x,y.softmax(1)) torch.cdist(x,y)
F.l1_loss(x,y) F.huber_loss(x,y) x.abs().mean(1) torch.linalg.vector_norm(x) torch.norm(x)"""
PRODUCTS = """x@y.t() torch.mm(x,x.t()) F.linear(x,y) F.linear(x,y,x[:,0]) torch.addmm(x[0,:5],x,y.t())
torch.addmm(y[:,:5],x,y.t(),beta=0.5,alpha=2) torch.einsum('ik,jk->ij',x,y) torch.einsum('ij->ji',x) torch.bmm(a,a)
torch.matmul(a,x[0,:4])
torch.matmul(x[0],y.t()) torch.baddbmm(a,a,a) torch.outer(x[0],y[0]) torch.kron(x[:2,:2],y[:2,:2]) torch.einsum('bij,bkj->bik',a,a)
F.scaled_dot_product_attention(a,a,a)
F.scaled_dot_product_attention(a,a,a,is_causal=True) F.scaled_dot_product_attention(a,a,a,attn_mask=a)
F.scaled_dot_product_attention(a,a,a,attn_mask=a>a.amin(2,keepdim=True),scale=0.3) torch.dot(x[0],y[0])
torch.tensordot(x,y,dims=([1],[1]))"""
MOVES = """x.t() x.view(6,5) x.reshape(2,15) x.flatten() a.permute(2,0,1) a.transpose(0,2) x.unsqueeze(1) x[None].squeeze(0)
x.unsqueeze(0).expand(3,5,6) x.repeat(2,3) x.repeat(2,1,2) torch.cat((x,y),1) torch.stack((x,y),1) x[1:4] x[:,::2] x[-2:] x[:,1]
x.split(2,0)[1] x.chunk(3,1)[2] a.unbind(1)[2] x.flip(0) a.flip((0,2)) x.roll(2,1) x.diagonal() x.diagonal(1) x.diagonal(-2)
a.diagonal(0,1,2) x.tril() x.triu(1) F.pad(x,(1,2)) F.pad(x,(1,2,0,1),value=3.0) F.pad(x,(-1,1)) F.pad(a,(1,1),mode='reflect')
F.pad(a,(2,1),mode='replicate') torch.slice_scatter(x,y[1:3],0,1,3) torch.select_scatter(x,y[0],0,2)
x.narrow(1,2,3) x.clone() torch.diag(x[0]) torch.tril(torch.ones(5,6))*x x.swapaxes(0,1) torch.hstack((x,y)) torch.meshgrid(x[0],y[0])[0]
x.repeat_interleave(2,0) torch.eye(5)@x torch.broadcast_to(x[0],(4,6)) x.unflatten(1,(2,3))"""
WINDOWS = """F.conv2d(im,ke) F.conv2d(im,ke,torch.ones(6),2,1) F.conv2d(im,ke[:,:2],padding=1,groups=2,dilation=2)
F.conv1d(im[:,:,0],ke[:,:,0]) F.conv3d(im[:,:,None],ke[:,:,None]) F.conv_transpose2d(im,ke[:4],stride=2,padding=1,output_padding=1)
F.conv_transpose1d(im[:,:,0],ke[:4,:,0]) F.max_pool2d(im,2) F.max_pool2d(im,3,2,1) F.max_pool1d(im[:,:,0],2)
F.max_pool3d(im[:,:,None],(1,2,2)) F.avg_pool2d(im,2) F.avg_pool2d(im,3,2,1) F.avg_pool2d(im,3,2,1,count_include_pad=False)
F.avg_pool1d(im[:,:,0],3)
F.avg_pool3d(im[:,:,None],(1,2,2)) F.adaptive_avg_pool2d(im,1) F.adaptive_avg_pool2d(im,(4,2)) F.interpolate(im,scale_factor=2)
F.interpolate(im,scale_factor=2,mode='bilinear') F.interpolate(im,size=(5,9),mode='bilinear',align_corners=True)
F.pixel_shuffle(im,2) F.layer_norm(im,(8,8)) F.layer_norm(im,(8,),torch.ones(8)*2,torch.ones(8)) F.layer_norm(im,(8,),eps=1e-3)
F.rms_norm(im,(8,)) F.rms_norm(im,(8,),torch.ones(8)*2,1e-4) F.group_norm(im,2,torch.ones(4)*2,torch.ones(4)) F.instance_norm(im)
F.batch_norm(im,torch.zeros(4),torch.ones(4)*2) F.batch_norm(im,None,None,training=True) F.local_response_norm(im,3) im.unfold(2,3,2)
F.conv2d(im[0],ke)"""
INDICES = """x.argmax(1) x.argmin(0) x.argmax() x.argmax(1,keepdim=True) x.max(1)[1] F.embedding(i,x) x[i] x[:,i] x.index_select(1,i)
x.gather(1,i[:4].view(4,1)) torch.gather(x,0,i[:4].view(2,2)) x.prod(1) x.prod() F.one_hot(i,5).float() F.cross_entropy(x[:4],i[:4])
F.nll_loss(x[:4],i[:4])"""


@unittest.skipIf(torch is None, "SKIPPED: no PyTorch")
class Export(Case):
    def inputs(self):
        torch.manual_seed(1)
        x, y = torch.randn(5, 6), torch.randn(5, 6)
        return {
            "x": x,
            "y": y,
            "p": torch.rand(5, 6) + 0.5,
            "a": torch.randn(2, 4, 4),
            "im": torch.randn(2, 4, 8, 8),
            "ke": torch.randn(6, 4, 3, 3),
            "i": torch.tensor([3, 0, 1, 4]),
        }

    def agree(self, texts, arguments):
        """One export of all of them; a row that is refused or wrong is named."""
        texts = texts.split()
        rows = [eval("lambda x, y, p, a, im, ke, i: " + t, {"torch": torch, "F": F}) for t in texts]
        values = self.inputs()
        module, args = Rows(rows), tuple(values[k] for k in ("x", "y", "p", "a", "im", "ke", "i"))
        wrong = []
        try:
            self.compare(module, args, texts, wrong)
        except mirage_opt.Unsupported as error:
            for text, r in zip(texts, rows):
                try:
                    self.compare(Rows([r]), args, [text], wrong)
                except mirage_opt.Unsupported as one:
                    wrong.append("%s: %s" % (text, one.findings))
            self.fail("\n".join(wrong) or str(error))
        self.assertEqual(wrong, [])

    def compare(self, module, args, texts, wrong):
        e = mirage_opt.export(module, args, name="rows")
        given = {
            s.input: dict(zip(("args_0", "args_1", "args_2", "args_3", "args_4", "args_5", "args_6"), args)).get(s.name) for s in e.sources
        }
        for s in e.sources:
            if given[s.input] is None:
                self.fail("an input of its own: %s" % (s,))
        got = dict(zip(e.spec["outputs"], evaluate(e.spec, given)))
        for text, name, want in zip(texts, e.outputs, module(*args)):
            out = got[name]
            if tuple(out.shape) != tuple(want.shape) or not torch.allclose(
                out.double(), want.double(), rtol=1e-4, atol=1e-5, equal_nan=True
            ):
                wrong.append("%s: %s, expected %s" % (text, out.flatten()[:4], want.flatten()[:4]))

    def test_elementwise(self):
        self.agree(ELEMENTWISE, ())

    def test_rounded(self):
        self.need("floor", "sign", "round")
        self.agree(ROUNDED, ())

    def test_transcendental(self):
        self.need("sin", "erf", "expm1")
        self.agree(TRANSCENDENTAL, ())

    def test_reductions(self):
        self.agree(REDUCTIONS, ())

    def test_products(self):
        self.agree(PRODUCTS, ())

    def test_moves(self):
        self.agree(MOVES, ())

    def test_windows(self):
        self.agree(WINDOWS, ())

    def test_indices(self):
        self.need("argmax", "embedding", "gather", "prod")
        self.agree(INDICES, ())

    def need(self, *operators):
        missing = [o for o in operators if o not in command.operators()]
        if missing:
            self.skipTest("SKIPPED: this mirage-opt has no " + ", ".join(missing))


if __name__ == "__main__":
    unittest.main()
